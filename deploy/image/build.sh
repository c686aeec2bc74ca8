#!/usr/bin/env bash
# Builds the image without a base image: a Debian root by mmdebstrap, this project by pip, an OCI archive by buildah.
# Needs: mmdebstrap, buildah, and pip's package index. Usage: deploy/image/build.sh [ARCHIVE]
set -euo pipefail
cd "$(dirname "$0")/../.."
archive=$(realpath -m "${1:-interfere-image.tar}")
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mmdebstrap --quiet --variant=minbase --include=python3,python3-venv,ca-certificates bookworm "$root/fs"
python3 -m pip --disable-pip-version-check wheel --quiet --no-deps --wheel-dir "$root/wheel" .
cp "$root"/wheel/*.whl "$root/fs/tmp/"
cp /etc/resolv.conf "$root/fs/etc/resolv.conf"
chroot "$root/fs" sh -c 'python3 -m venv /opt/interfere \
  && /opt/interfere/bin/pip install --quiet --no-cache-dir --no-compile "$(echo /tmp/*.whl)[serve,kubernetes]" \
  && /opt/interfere/bin/pip uninstall --quiet --yes pip setuptools && rm -rf /tmp/*.whl /var/lib/apt/lists/* /var/cache/apt'
container=$(buildah from scratch)
buildah add --quiet "$container" "$root/fs" /
buildah config --user 65532:65532 --workingdir /tmp --env PATH=/opt/interfere/bin:/usr/bin:/bin \
  --env PYTHONDONTWRITEBYTECODE=1 --entrypoint '["/opt/interfere/bin/interfere"]' --cmd --help "$container"
buildah commit --quiet --rm "$container" "oci-archive:$archive:interfere:0.1.0" >/dev/null
echo "$archive: $(du -h "$archive" | cut -f1), root $(du -sh "$root/fs" | cut -f1)"
