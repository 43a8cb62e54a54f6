#!/bin/sh
# Stands in for a bot's comment: one line for each.
echo "comment on $1 #$2" >>comments.txt
