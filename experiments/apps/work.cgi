#!/bin/sh
# A program for Apache's CGI: each answer takes a fixed amount of work.
i=0
while [ $i -lt 2000 ]; do i=$((i + 1)); done
printf 'Content-Type: text/html\r\n\r\n%1024s\n' page
