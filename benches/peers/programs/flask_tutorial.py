"""A webhook handler as tutorials show it: a connection for each request, and look first, then insert.

It verifies the signature of GitHub, looks whether the delivery id is known, and records it.
It does not keep the body, retry anything, or survive two copies at the same time: both find nothing, and both act. A
unique key would not help: the second insert would fail after the effect.

Started by: gunicorn --workers 2 --threads 16 flask_tutorial:app
Table: deliveries (id text not null, received timestamptz not null default now()), with an index on id
"""

import hashlib
import hmac
import os

import psycopg2
from flask import Flask, abort, g, request

app = Flask(__name__)
SECRET = os.environ["SECRET"].encode()


def get_db():
    if "db" not in g:
        g.db = psycopg2.connect(os.environ["DATABASE_URL"])
    return g.db


@app.teardown_appcontext
def close_db(_error):
    db = g.pop("db", None)
    if db is not None:
        db.close()


@app.post("/version/1")
def webhook():
    signature = "sha256=" + hmac.new(SECRET, request.get_data(), hashlib.sha256).hexdigest()
    if not hmac.compare_digest(signature, request.headers.get("X-Hub-Signature-256", "")):
        abort(401)
    delivery = request.headers["X-GitHub-Delivery"]
    cursor = get_db().cursor()
    cursor.execute("SELECT 1 FROM deliveries WHERE id = %s", (delivery,))
    if cursor.fetchone():
        return "", 200
    # Here a real one acts.
    cursor.execute("INSERT INTO deliveries (id) VALUES (%s)", (delivery,))
    get_db().commit()
    return "", 202
