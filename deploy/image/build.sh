#!/usr/bin/env bash
# Builds the image without a base image and without privileges: a Debian root by mmdebstrap, this project by pip, an OCI
# archive by umoci; `skopeo copy oci-archive:FILE docker://REGISTRY/interfere:0.1.0` pushes it.
# Needs: mmdebstrap, umoci, Python 3.11 with pip. Usage: deploy/image/build.sh [ARCHIVE]
set -euo pipefail
cd "$(dirname "$0")/../.."
archive=$(realpath -m "${1:-interfere-image.tar}")
python=${PYTHON:-python3.11}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mmdebstrap --quiet --variant=minbase --include=python3,ca-certificates \
  --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
  --dpkgopt='path-exclude=/usr/share/locale/*' bookworm "$work/root.tar"
mkdir "$work/fs" && tar -xf "$work/root.tar" -C "$work/fs" --exclude='./dev/*' && rm "$work/root.tar"
# The wheel and what it needs come from files whose hashes are known: make lock.
"$python" -m venv "$work/build"
"$work/build/bin/pip" install --quiet --require-hashes --only-binary=:all: -r deploy/image/build.lock
"$work/build/bin/pip" wheel --quiet --no-deps --no-build-isolation --wheel-dir "$work/wheel" .
pip_install() { "$work/build/bin/pip" install --quiet --no-compile --target "$work/fs/opt/interfere" "$@"; }
pip_install --require-hashes --only-binary=:all: -r deploy/image/requirements.lock
pip_install --no-deps --upgrade "$work"/wheel/*.whl
printf '#!/bin/sh\nPYTHONPATH="%s" exec "%s" -S "$@"\n' "$work/fs/opt/interfere" "$work/build/bin/python" >"$work/installed"
chmod +x "$work/installed" # a Python that sees what was installed, and nothing else
"$work/build/bin/cyclonedx-py" environment --output-reproducible --pyproject pyproject.toml \
  --output-file "$work/fs/opt/interfere/sbom.cdx.json" "$work/installed"
sed -i '1s|.*|#!/usr/bin/python3|' "$work/fs/opt/interfere/bin/interfere"
umoci init --layout "$work/image"
umoci new --image "$work/image:0.1.0"
umoci insert --rootless --image "$work/image:0.1.0" "$work/fs" /
umoci config --image "$work/image:0.1.0" --config.user 65532:65532 --config.workingdir /tmp \
  --config.env PYTHONPATH=/opt/interfere --config.env PYTHONDONTWRITEBYTECODE=1 \
  --config.env PATH=/opt/interfere/bin:/usr/bin:/bin --config.entrypoint /opt/interfere/bin/interfere --config.cmd --help
tar -cf "$archive" -C "$work/image" .
echo "$archive: $(du -h "$archive" | cut -f1), unpacked $(du -sh "$work/fs" | cut -f1)"
