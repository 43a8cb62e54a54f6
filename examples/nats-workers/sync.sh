#!/bin/sh
# A stand-in for a sync job: writes one line per run.
echo "sync $1" >>syncs.txt
