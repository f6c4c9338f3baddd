"""Loads a checkpoint of the servers in KVSTORE_SERVERS into them, after they have been restarted.

    python restore.py FOLDER

The folder must have the parts of all servers. With certificates, needs the role `admin`.
"""

import sys

import digits
import mxkv as mx


def main():
    if len(sys.argv) != 2:
        sys.exit(f"restore.py: expected FOLDER, found {len(sys.argv) - 1} arguments")
    with mx.kv.create(digits.KIND, member="restore", divide_above=digits.DIVIDE_ABOVE) as store:
        store.restore(sys.argv[1])
        _, tested = digits.load()
        accuracy = digits.accuracy(digits.pull(store), tested)
        print(f"restored {', '.join(sorted(store.keys()))}: accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
