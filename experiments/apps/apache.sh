#!/bin/sh
# Debian's apache2 with a process for each connection, which starts work.cgi for each request. Argument: the address.
apps=$(dirname "$0")
modules=/usr/lib/apache2/modules
chmod 755 "$apps/work.cgi"
cat > "$apps/apache.conf" <<END
LoadModule mpm_prefork_module $modules/mod_mpm_prefork.so
LoadModule authz_core_module $modules/mod_authz_core.so
LoadModule alias_module $modules/mod_alias.so
LoadModule cgi_module $modules/mod_cgi.so
ServerName localhost
ServerRoot $apps
PidFile $apps/apache.pid
ErrorLog /dev/stderr
User nobody
Group nogroup
Listen $1
ScriptAlias / $apps/work.cgi/
END
exec apache2 -DFOREGROUND -f "$apps/apache.conf"
