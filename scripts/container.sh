#!/bin/sh
# Builds the image of Containerfile and writes it to target/kvstore-image.tar, an OCI archive, which
# `podman load` and `docker load` read. If buildah is missing, root installs it with apt. It needs
# no daemon, and runs inside containers too.
set -eu
cd "$(dirname "$0")/.."
. scripts/apt.sh

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
image=kvstore:$version
archive=target/kvstore-image.tar

command -v buildah >/dev/null 2>&1 || apt_install buildah >/dev/null || {
    echo "container.sh: buildah is missing: apt-get install buildah" >&2
    exit 1
}

# In the storage of the user, the kernel must have overlays.
buildah() {
    command buildah --root "$PWD/target/container-storage/root" \
        --runroot "$PWD/target/container-storage/run" --storage-driver vfs "$@"
}

scripts/static.sh
buildah build --quiet --isolation chroot --tag "$image" --file Containerfile target/container \
    >target/container-storage.log
rm -f "$archive"
buildah push --quiet "$image" "oci-archive:$archive:$image"
# The archive has the image, so its layers are not needed any more.
buildah rmi --all --force >>target/container-storage.log
ls -l "$archive"
