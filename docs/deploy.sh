#!/usr/bin/env bash
# From nothing to a federation on three machines, as docs/DEPLOY.md tells it; tests/cli/test_deploy.py runs this.
#
#   docs/deploy.sh [auto|namespaces|loopback] [DIR]
#
# The machines are network namespaces joined by a bridge (root and `ip` needed), or, where that is not
# possible, folders on this machine that talk over loopback. `at MACHINE COMMAND...` is "log in there and type".
# lpgcn and nats-server are taken from PATH. Whatever is started here is stopped here.
set -euo pipefail

how=${1:-auto}
work=$(realpath "${2:-$(mktemp -d)}")
port=${PORT:-4222}
metrics=${METRICS_PORT:-9464}
seconds=${SECONDS_TO_WAIT:-300}
name=lp$$
started=()

say() { printf '\n== %s\n' "$*"; }

# --- three machines -------------------------------------------------------------------------------

namespaces() {
  ip netns add "$name-lan"
  ip -n "$name-lan" link add lan type bridge
  ip -n "$name-lan" link set lan up
  local number=1 machine
  for machine in server one two; do
    ip netns add "$name-$machine"
    ip -n "$name-lan" link add "to-$machine" type veth peer name eth0 netns "$name-$machine"
    ip -n "$name-lan" link set "to-$machine" master lan up
    ip -n "$name-$machine" address add "10.77.0.$number/24" dev eth0
    ip -n "$name-$machine" link set eth0 up
    ip -n "$name-$machine" link set lo up
    number=$((number + 1))
  done
}

remove_namespaces() {
  local machine
  for machine in server one two lan; do
    ip netns delete "$name-$machine" 2>/dev/null || true
  done
}

stop_everything() {
  local pid
  for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${started[@]}"; do wait "$pid" 2>/dev/null || true; done
  if [ "$how" = namespaces ]; then remove_namespaces; fi
}

if [ "$how" = auto ]; then
  if (set -e; namespaces) 2>/dev/null; then
    how=namespaces
  else
    remove_namespaces
    how=loopback
  fi
elif [ "$how" = namespaces ]; then
  namespaces
fi
trap stop_everything EXIT
if [ "$how" = namespaces ]; then broker=10.77.0.1; else broker=127.0.0.1; fi
mkdir -p "$work"/{server,one,two}

at() {
  local machine=$1
  shift
  if [ "$how" = namespaces ]; then
    (cd "$work/$machine" && exec ip netns exec "$name-$machine" "$@")
  else
    (cd "$work/$machine" && exec "$@")
  fi
}

# In the background, with its standard output and standard error in files of that machine.
start() {
  local machine=$1 what=$2
  shift 2
  (
    cd "$work/$machine"
    if [ "$how" = namespaces ]; then set -- ip netns exec "$name-$machine" "$@"; fi
    exec "$@" >"$what.out" 2>"$what.log"
  ) &
  started+=($!)
}

# Until a line is in a file that a process writes; not for ever.
wait_for() {
  local pid=$1 file=$2 line=$3 waited=0
  until grep -q -- "$line" "$file" 2>/dev/null; do
    waited=$((waited + 1))
    if [ "$waited" -gt $((seconds * 5)) ] || ! kill -0 "$pid" 2>/dev/null; then
      echo "no '$line' in $file:" >&2
      cat "$file" >&2
      return 1
    fi
    sleep 0.2
  done
}

finish() {
  local pid=$1 file=$2
  if ! wait "$pid"; then
    echo "failed; its log says:" >&2
    cat "$file" >&2
    return 1
  fi
}

# --- what is there before: a public catalogue, and everybody's own data ---------------------------

interactions() { # of these users, 9 of 30 items each
  echo "user_id,item_id"
  local user item
  for user in "$@"; do
    for item in 0 1 2 3 4 5 6 7 8; do
      printf 'user-%s,film-%02d\n' "$user" $(((user * 5 + item * (item + 3) / 2 + item) % 30))
    done
  done | sort -u
}
for item in $(seq -w 0 29); do echo "film-$item"; done >"$work/server/items.txt"
interactions 1 2 3 4 >"$work/one/family.csv"
interactions 5 >"$work/one/alice.csv"
interactions 6 >"$work/two/bob.csv"

# --- the federation -------------------------------------------------------------------------------

say "server: make the federation ($how, broker at $broker:$port)"
at server lpgcn federation init fed --host "$broker" --port "$port" --name films

say "server: credentials for the clients on machine one, an invitation for who is on machine two"
at server lpgcn federation enrol fed family alice --out credentials
at server lpgcn federation invite fed --uses 1 --days 3 --out bob.invitation

say "by hand: each file to its owner, over a channel that nobody else reads"
install -m 600 "$work/server/credentials/family.credentials" "$work/one/"
install -m 600 "$work/server/credentials/alice.credentials" "$work/one/"
install -m 600 "$work/server/bob.invitation" "$work/two/"
rm -r "$work/server/credentials" "$work/server/bob.invitation"

say "server: the broker, then the server of the federation"
start server broker sh -c 'cd fed && exec nats-server -c broker.conf'
broker_pid=${started[-1]}
wait_for "$broker_pid" "$work/server/broker.log" "Server is ready"
start server serve lpgcn serve --federation fed --broker "tls://$broker:$port" --catalogue items.txt \
  --clients 6 --state run --epochs 3 --dim 8 --layers 2 --batch-size 16 --checkpoint-every 2 \
  --metrics-port "$metrics" --log-json --json
serve_pid=${started[-1]}
wait_for "$serve_pid" "$work/server/serve.log" '"event":"gathering"'

say "machine one: a host with four clients, and a client of its own"
start one family lpgcn host family --train family.csv --credentials family.credentials --state family --log-json
family_pid=${started[-1]}
start one alice lpgcn join --credentials alice.credentials --data alice.csv --state alice --log-json --json
alice_pid=${started[-1]}

say "machine two: a client with an invitation; its key never leaves this machine"
start two bob lpgcn join --credentials bob.invitation --name bob --data bob.csv --state bob --log-json
bob_pid=${started[-1]}

finish "$serve_pid" "$work/server/serve.log"
finish "$family_pid" "$work/one/family.log"
finish "$alice_pid" "$work/one/alice.log"
finish "$bob_pid" "$work/two/bob.log"

say "by phone: the fingerprints of the key directory are the same"
of_alice=$(grep -o '"fingerprint":"[^"]*"' "$work/one/alice.log")
of_bob=$(grep -o '"fingerprint":"[^"]*"' "$work/two/bob.log")
echo "alice $of_alice"
echo "bob   $of_bob"
[ "$of_alice" = "$of_bob" ]

say "machine two: what bob was shown, and the same again without any network"
cat "$work/two/bob.out"
at two lpgcn recommend bob -k 3

say "server: alice's credentials have leaked; the broker reads its configuration again"
at server lpgcn federation revoke fed alice
kill -HUP "$broker_pid"
wait_for "$broker_pid" "$work/server/broker.log" "Reloaded server configuration"
if at one lpgcn join --credentials alice.credentials --data alice.csv --state again; then
  echo "a client that was thrown out came in" >&2
  exit 1
fi

say "done; everything is stopped"
