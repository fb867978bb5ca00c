#!/bin/sh
# Every peer into .bench/, each with what it needs in a virtual environment of its own. What cannot be installed is said,
# and the benchmark goes on without it.
cd "$(dirname "$0")/../.." || exit 1
mkdir -p .bench
for file in bench/peers/*.txt; do
    name=$(basename "$file" .txt)
    [ ".bench/$name/.ready" -nt "$file" ] && continue
    test -x ".bench/$name/bin/python" || "${PYTHON:-python3}" -m venv ".bench/$name" || continue
    own=""; [ "$name" = reliq ] && own="--editable ."
    echo "setting up $name"
    # shellcheck disable=SC2086
    if ".bench/$name/bin/python" -m pip install --quiet --disable-pip-version-check $own -r "$file" 2>".bench/$name/pip.log"
    then touch ".bench/$name/.ready"
    else echo "cannot install $name, its contestants are left out:"; tail -n 1 ".bench/$name/pip.log"
    fi
done
if command -v npm >/dev/null 2>&1; then
    if ! [ .bench/node/.ready -nt bench/peers/package.json ]; then
        mkdir -p .bench/node && cp bench/peers/package.json .bench/node/
        echo "setting up node"
        if (cd .bench/node && npm install --silent --no-audit --no-fund); then touch .bench/node/.ready
        else echo "cannot install BullMQ, it is left out"; fi
    fi
else
    echo "no npm: BullMQ is left out"
fi
[ -x /usr/lib/rabbitmq/bin/rabbitmq-server ] || command -v rabbitmq-server >/dev/null 2>&1 || echo "no rabbitmq-server: RabbitMQ is left out"
exit 0
