"""A handler without dependencies: the standard library's HTTP server, and SQLite with a write-ahead log.

It verifies the signature of GitHub, and records the delivery id durably (`synchronous = full`, SQLite's default), once
whatever arrives at the same time. One connection behind a lock: threads with connections of their own would poll
SQLite's lock, and wait longer.
It does not keep the body, retry anything, or limit what a client may send.

Started by: python3 stdlib_sqlite.py PORT
"""

import hashlib
import hmac
import os
import sqlite3
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRET = os.environ["SECRET"].encode()

db = sqlite3.connect("deliveries.db", check_same_thread=False)
db.execute("PRAGMA journal_mode = wal")
db.execute("CREATE TABLE IF NOT EXISTS deliveries (id TEXT PRIMARY KEY, received TEXT DEFAULT CURRENT_TIMESTAMP)")
db_lock = threading.Lock()


class Webhook(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keeps connections

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        signature = "sha256=" + hmac.new(SECRET, body, hashlib.sha256).hexdigest()
        if not hmac.compare_digest(signature, self.headers.get("X-Hub-Signature-256", "")):
            return self.answer(401)
        with db_lock, db:
            insert = db.execute("INSERT OR IGNORE INTO deliveries (id) VALUES (?)", (self.headers["X-GitHub-Delivery"],))
        self.answer(202 if insert.rowcount == 1 else 200)

    def answer(self, status):
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 128  # its default of 5 turns away what connects at the same time


Server(("127.0.0.1", int(sys.argv[1])), Webhook).serve_forever()
