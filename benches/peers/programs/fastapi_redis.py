"""An asynchronous handler that remembers delivery ids in Redis for a week.

It verifies the signature of GitHub, and records the delivery id, once whatever arrives at the same time.
It does not keep the body, retry anything, or know whether the action happened if it ends in between.

Started by: uvicorn --workers 2 --no-access-log fastapi_redis:app (with uvloop and httptools)
"""

import hashlib
import hmac
import os

import redis.asyncio as redis
from fastapi import FastAPI, Request, Response

app = FastAPI()
SECRET = os.environ["SECRET"].encode()
WEEK = 7 * 24 * 3600
store = redis.from_url(os.environ["REDIS_URL"])


@app.post("/version/1")
async def webhook(request: Request):
    body = await request.body()
    signature = "sha256=" + hmac.new(SECRET, body, hashlib.sha256).hexdigest()
    if not hmac.compare_digest(signature, request.headers.get("x-hub-signature-256", "")):
        return Response(status_code=401)
    new = await store.set("delivery:" + request.headers["x-github-delivery"], "1", nx=True, ex=WEEK)
    return Response(status_code=202 if new else 200)
