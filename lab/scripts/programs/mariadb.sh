#!/bin/sh
# MariaDB on a mount: sysbench OLTP, the serving process killed in the middle, InnoDB's recovery;
# no row is missing whose commit was answered, and every table is whole.
. "$(dirname "$0")/lib.sh"
need mariadbd mariadb-server
need mariadb mariadb-client
need mariadb-install-db mariadb-server
[ "$(id -u)" = 0 ] || skip "needs root, to run the server as another user"
getent passwd mysql >/dev/null || skip "needs the user mysql; install mariadb-server"
[ -z "$long" ] || need sysbench sysbench
begin mariadb 3G
data=$mnt/data
socket=$work/socket
database=
seconds=10
kills=1
[ -n "$long" ] && seconds=120 && kills=5
chmod 777 "$work"

runs=
writer=
end_programs() { slain $database $runs $writer; database= runs= writer=; }
sql() { mariadb --no-defaults --socket="$socket" -u root -N -e "$1"; }

start_database() {
    # The flush method that uses fsync.
    mariadbd --no-defaults --user=mysql --datadir="$data" --socket="$socket" --skip-networking \
        --pid-file="$work/pid" --innodb-flush-method=fsync --innodb-flush-log-at-trx-commit=1 \
        --innodb-log-file-size=64M --innodb-buffer-pool-size=128M --skip-log-bin \
        --log-error="$work/log" </dev/null >/dev/null 2>&1 &
    database=$!
    tries=12000
    until sql 'SELECT 1' >/dev/null 2>&1; do
        kill -0 "$database" 2>/dev/null || fail "the server ended: $(tail -n 20 "$work/log")"
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || fail "no answer: $(tail -n 20 "$work/log")"
        sleep 0.05
    done
}

mkdir "$data"
chown mysql "$data"
mariadb-install-db --no-defaults --user=mysql --datadir="$data" --skip-test-db \
    --auth-root-authentication-method=normal --innodb-log-file-size=64M >"$work/said" 2>&1 ||
    fail "mariadb-install-db: $(tail -n 20 "$work/said")"
start_database
sql 'CREATE DATABASE sbtest; CREATE TABLE sbtest.acked (k INT PRIMARY KEY) ENGINE=InnoDB'
bench() {
    sysbench oltp_read_write --mysql-socket="$socket" --mysql-user=root --tables=4 \
        --table-size=50000 --threads=8 "$@"
}
if [ -n "$long" ]; then
    bench prepare >"$work/said" || fail "sysbench: $(tail -n 5 "$work/said")"
fi

kill=0
answered=0
while [ "$kill" -lt "$kills" ]; do
    if [ -n "$long" ]; then
        bench --time="$seconds" run >"$work/said" 2>&1 || fail "sysbench: $(tail -n 5 "$work/said")"
        grep -E 'transactions:|queries:' "$work/said"
        bench --time=600 run >/dev/null 2>&1 &
        runs=$!
    fi
    insert_until_killed sbtest.acked
    pause 1000 3000
    strike
    start_database
    no_insert_is_missing sbtest.acked
    mariadb-check --no-defaults --socket="$socket" -u root --check --extended sbtest >"$work/said"
    grep -v 'OK$' "$work/said" && fail "a table is damaged: $(cat "$work/said")"
    kill=$((kill + 1))
done
mariadb-admin --no-defaults --socket="$socket" -u root shutdown
wait "$database"
database=
finish
