// An Express handler with a pool of PostgreSQL connections, and one insert that decides; two workers.
//
// It verifies the signature of GitHub, and records the delivery id, once whatever arrives at the same time.
// It does not keep the body, retry anything, or know whether the action happened if it ends in between.
//
// Started by: NODE_ENV=production node server.js PORT
// Table: deliveries (id text primary key, received timestamptz not null default now())

const cluster = require("node:cluster");
const crypto = require("node:crypto");

const WORKERS = 2;

if (cluster.isPrimary) {
  for (let n = 0; n < WORKERS; n++) cluster.fork();
} else {
  serve(Number(process.argv[2]));
}

function serve(port) {
  const express = require("express");
  const { Pool } = require("pg");
  const pool = new Pool({ connectionString: process.env.DATABASE_URL, max: 16 });
  const app = express();

  app.post("/version/1", express.raw({ type: "*/*", limit: "25mb" }), async (req, res) => {
    if (!signed(req.body, req.get("x-hub-signature-256") ?? "")) return res.status(401).end();
    const insert = await pool.query({
      name: "insert", // prepared once for each connection
      text: "INSERT INTO deliveries (id) VALUES ($1) ON CONFLICT DO NOTHING",
      values: [req.get("x-github-delivery")],
    });
    res.status(insert.rowCount === 1 ? 202 : 200).end();
  });
  app.listen(port, "127.0.0.1");
}

function signed(body, signature) {
  const expected = "sha256=" + crypto.createHmac("sha256", process.env.SECRET).update(body).digest("hex");
  return signature.length === expected.length && crypto.timingSafeEqual(Buffer.from(signature), Buffer.from(expected));
}
