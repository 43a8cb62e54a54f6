#!/bin/sh
# A stand-in for a bot that comments: writes one line per comment.
echo "comment on $1 #$2" >>comments.txt
