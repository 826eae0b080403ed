#!/bin/sh
# PostgreSQL on a mount: pgbench with fsync on, the serving process killed in the middle, recovery;
# the sums of pgbench agree, no answered insert is missing, every heap and index page is readable.
. "$(dirname "$0")/lib.sh"
[ "$(id -u)" = 0 ] || skip "needs root, to run the server as another user"
for place in /usr/lib/postgresql/*/bin; do
    [ -d "$place" ] && PATH="$place:$PATH"
done
need pg_ctl postgresql
for place in /usr/lib/postgresql/*/bin; do
    [ -d "$place" ] && PATH="$place:$PATH"
done
need pgbench postgresql
need psql postgresql-client
need ps procps
getent passwd postgres >/dev/null || skip "needs the user postgres; install postgresql"
begin postgresql 2G
seconds=1
kills=1
load=
[ -n "$long" ] && seconds=120 && kills=5
data=$mnt/data
chmod 777 "$work"
mkdir "$data"
chown postgres "$data"
chmod 700 "$data"

as_postgres() { (cd / && setpriv --reuid=postgres --regid=postgres --init-groups -- "$@"); }
sql() { as_postgres psql -h "$work" -d postgres -qAt -v ON_ERROR_STOP=1 -c "$1"; }
start_database() {
    as_postgres pg_ctl -D "$data" -l "$work/log" -w -t 300 \
        -o "-c listen_addresses= -k $work -c fsync=on -c synchronous_commit=on" \
        start >"$work/said" 2>&1 || fail "pg_ctl: $(cat "$work/said" "$work/log" | tail -n 20)"
    cp "$data/postmaster.pid" "$work/postmaster"
}
writer=
# Every process of the server dies with its files, as in a power cut.
end_programs() {
    if [ -e "$work/postmaster" ]; then
        parent=$(head -n 1 "$work/postmaster")
        rm "$work/postmaster"
        children=$(ps -o pid= --ppid "$parent" || true)
        # shellcheck disable=SC2086 # words
        kill -9 "$parent" $children 2>/dev/null || true
    fi
    slain $load $writer
    load= writer=
}

as_postgres initdb -D "$data" -A trust --data-checksums >"$work/said" 2>&1 ||
    fail "initdb: $(tail -n 5 "$work/said")"
start_database
sql 'CREATE TABLE acked (k int PRIMARY KEY)'
as_postgres pgbench -h "$work" -i -q -s 1 postgres >"$work/said" 2>&1 ||
    fail "pgbench -i: $(tail -n 5 "$work/said")"

kill=0
answered=0
while [ "$kill" -lt "$kills" ]; do
    as_postgres pgbench -n -h "$work" -c 8 -j 2 -T "$seconds" postgres >"$work/said" 2>&1 ||
        fail "pgbench: $(tail -n 5 "$work/said")"
    grep -E 'tps|number of transactions' "$work/said"
    as_postgres pgbench -n -h "$work" -c 4 -T 600 postgres >/dev/null 2>&1 &
    load=$!
    insert_until_killed acked
    pause 1000 3000
    strike
    rm -f "$data/postmaster.pid" "$work"/.s.PGSQL.*
    start_database
    no_insert_is_missing acked
    sums=$(sql "SELECT (SELECT sum(abalance) FROM pgbench_accounts) =
            (SELECT sum(bbalance) FROM pgbench_branches) AND
            (SELECT sum(bbalance) FROM pgbench_branches) =
            (SELECT sum(tbalance) FROM pgbench_tellers) AND
            (SELECT sum(tbalance) FROM pgbench_tellers) =
            (SELECT coalesce(sum(delta), 0) FROM pgbench_history)")
    [ "$sums" = t ] || fail "the sums of pgbench differ"
    as_postgres pg_dump -h "$work" postgres >/dev/null || fail "pg_dump cannot read everything"
    kill=$((kill + 1))
done
as_postgres pg_ctl -D "$data" -m fast -w stop >/dev/null
finish
