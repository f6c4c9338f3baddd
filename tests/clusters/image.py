"""Reads an image from an OCI archive, such as that of scripts/container.sh."""

import io
import json
import tarfile


class Image:
    """The configuration and the files of the only image in an archive."""

    def __init__(self, archive):
        with tarfile.open(archive) as self._tar:
            index = self._json("index.json")
            (described,) = index["manifests"]
            manifest = self._blob_json(described)
            self.config = self._blob_json(manifest["config"])["config"]
            self._layers = [self._blob(layer) for layer in manifest["layers"]]

    def _read(self, name):
        return self._tar.extractfile(name).read()

    def _json(self, name):
        return json.loads(self._read(name))

    def _blob(self, described):
        algorithm, digest = described["digest"].split(":")
        return self._read(f"blobs/{algorithm}/{digest}")

    def _blob_json(self, described):
        return json.loads(self._blob(described))

    def unpack(self, folder):
        """Writes the files to a folder, with their owners and modes."""
        for layer in self._layers:
            with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
                tar.extractall(folder, numeric_owner=True, filter="fully_trusted")
