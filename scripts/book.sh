#!/bin/sh
# book.sh   builds the manual in target/book: the pages of docs/, a page for each Clojure namespace,
# and the API pages of Rust and Java. mdBook is the Rust project's own builder of manuals; it is
# compiled into target/mdbook without its web server.
set -eu
cd "$(dirname "$0")/.."

VERSION=0.5.4
mdbook=target/mdbook/bin/mdbook
if [ "$("$mdbook" --version 2>/dev/null)" != "mdbook v$VERSION" ]; then
    if [ "${KVSTORE_SETUP:-}" = print ]; then
        echo "$0: would install mdbook $VERSION into target/mdbook" >&2
        exit 1
    fi
    cargo install --quiet --locked --version "$VERSION" --no-default-features --features search \
        --root target/mdbook mdbook
fi

pages=target/book-pages
rm -rf "$pages" target/book target/book-javadoc
cp -r docs "$pages"
clojure/bin/api-pages "$PWD/$pages/api"
cat >"$pages/api/README.md" <<'PAGE'
# API pages

- [Rust](../rust/kvstore/index.html)
- [Java](../java/index.html)
- Clojure: the pages below
PAGE
{
    printf '\n# API\n\n- [API pages](api/README.md)\n'
    for page in "$pages"/api/org.*.md; do
        page=$(basename "$page" .md)
        echo "    - [$page](api/$page.md)"
    done
} >>"$pages/SUMMARY.md"
"$mdbook" build "$pages" --dest-dir "$PWD/target/book"

cargo doc --workspace --no-deps
cp -r target/doc target/book/rust
mvn -f clojure/pom.xml -B -q -ntp -Dcargo.skip=true -Prelease javadoc:javadoc
cp -r clojure/target/release/reports/apidocs target/book/java
echo "book.sh: target/book/index.html"
