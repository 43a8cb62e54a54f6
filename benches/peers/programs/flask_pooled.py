"""The tutorial's handler done right: pooled connections, and one insert that decides.

It verifies the signature of GitHub, and records the delivery id, once whatever arrives at the same time.
It does not keep the body, retry anything, or know whether the action happened if it ends in between.

Started by: gunicorn --workers 2 --threads 16 flask_pooled:app
Table: deliveries (id text primary key, received timestamptz not null default now())
"""

import hashlib
import hmac
import os

from flask import Flask, abort, request
from psycopg_pool import ConnectionPool

app = Flask(__name__)
SECRET = os.environ["SECRET"].encode()
# One connection for each thread of this worker: nobody waits for one. Each statement is its own transaction.
pool = ConnectionPool(os.environ["DATABASE_URL"], min_size=16, max_size=16, kwargs={"autocommit": True}, open=True)

INSERT = "INSERT INTO deliveries (id) VALUES (%s) ON CONFLICT DO NOTHING"


@app.post("/version/1")
def webhook():
    signature = "sha256=" + hmac.new(SECRET, request.get_data(), hashlib.sha256).hexdigest()
    if not hmac.compare_digest(signature, request.headers.get("X-Hub-Signature-256", "")):
        abort(401)
    with pool.connection() as connection:
        new = connection.execute(INSERT, (request.headers["X-GitHub-Delivery"],)).rowcount == 1
    return "", 202 if new else 200
