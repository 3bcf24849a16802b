#!/bin/sh
# Write compose/requirements/ROLE.txt: what each image installs, at the versions of constraints.txt, with the hashes of
# the wheels. Run it with the PATH of an environment that has pip and hatchling: `make lock-images`.
set -eu
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python -m hatchling build -t wheel -d "$scratch" > "$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }
wheel=$(echo "$scratch"/*.whl)

resolve() { # resolve ROLE PYTHON MACHINE REQUIREMENT
    platforms=""
    for tag in manylinux_2_36 manylinux_2_35 manylinux_2_34 manylinux_2_31 manylinux_2_28 manylinux_2_27 manylinux_2_17 manylinux2014; do
        platforms="$platforms --platform ${tag}_$3"
    done
    # shellcheck disable=SC2086 # the words of $platforms are separate
    python -m pip install --dry-run --quiet --disable-pip-version-check --ignore-installed --only-binary=:all: \
        --python-version "$2" $platforms --target "$scratch/nowhere" --report "$scratch/$1.$2.$3.json" -c constraints.txt "$4"
}

mkdir -p compose/requirements
while read -r role requirement machines; do
    for machine in $machines; do resolve "$role" 3.12 "$machine" "$requirement"; done
    # What `make test-docker` takes for Python's image, where no registry can be reached.
    resolve "$role" 3.11 x86_64 "$requirement"
    python - "$scratch/$role".*.json > "compose/requirements/$role.txt" << 'END'
import json
import sys

hashes = {}
for path in sys.argv[1:]:
    for package in json.load(open(path))["install"]:
        name = package["metadata"]["name"].lower().replace("_", "-")
        if name != "tritonwatch":
            pin = f"{name}=={package['metadata']['version']}"
            hashes.setdefault(pin, set()).add(package["download_info"]["archive_info"]["hashes"]["sha256"])
print("# Written by `make lock-images`.")
for pin in sorted(hashes):
    print(" \\\n    ".join([pin, *(f"--hash=sha256:{digest}" for digest in sorted(hashes[pin]))]))
END
done << END
build hatchling x86_64 aarch64
exporter $wheel[exporter] x86_64 aarch64
stack $wheel[stack] x86_64 aarch64
demo $wheel[demo] x86_64
END
