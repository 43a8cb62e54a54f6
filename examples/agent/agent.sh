#!/bin/sh
# A stand-in for an AI agent: it is paid when it starts, and works as long as there is a file `thinking`.
echo "review of $1#$2 at $3: 1.50 USD" >>bill
while [ -e thinking ]; do sleep 0.05; done
