#!/bin/sh
# Stands in for a sync job: one line for each.
echo "sync $1" >>syncs.txt
