#!/bin/sh
# test-certificates.sh [FOLDER]   makes the certificates of the tests, in tests/certificates by
#                                 default: a new authority, and a folder for each role, valid for
#                                 127.0.0.1 and localhost. Needs openssl. The key of the authority
#                                 is not kept, so all folders change together.
set -eu
cd "$(dirname "$0")/.."

FOLDER=${1:-tests/certificates}
# Fixed, because the clocks of test machines may be wrong.
FIRST=20200101000000Z
LAST=21200101000000Z

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/ca.conf" <<CONFIG
[ca]
default_ca = authority
[authority]
new_certs_dir = $work
database = $work/index
default_md = sha256
policy = policy
unique_subject = no
rand_serial = yes
[policy]
organizationalUnitName = optional
commonName = supplied
[of_authority]
basicConstraints = critical, CA:TRUE, pathlen:0
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[of_server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
# A server is a member, too, when it registers with the scheduler of a job.
extendedKeyUsage = serverAuth, clientAuth
subjectAltName = IP:127.0.0.1, DNS:localhost
authorityKeyIdentifier = keyid
[of_member]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = clientAuth
authorityKeyIdentifier = keyid
CONFIG
: >"$work/index"

# certify SUBJECT EXTENSIONS KEY CERTIFICATE [OPTION..]   makes a key and its certificate
certify() {
    subject=$1 extensions=$2 key=$3 certificate=$4
    shift 4
    openssl genpkey -quiet -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$key"
    openssl req -config "$work/ca.conf" -new -key "$key" -subj "$subject" -out "$work/request"
    openssl ca -config "$work/ca.conf" -batch -notext -startdate "$FIRST" -enddate "$LAST" \
        -extensions "$extensions" -in "$work/request" -out "$certificate" "$@" 2>"$work/log" || {
        cat "$work/log" >&2
        exit 1
    }
}

authority="/CN=kvstore test authority"
certify "$authority" of_authority "$work/key" "$work/ca.pem" -selfsign -keyfile "$work/key"
for role in server worker reader admin; do
    mkdir -p "$FOLDER/$role"
    cp "$work/ca.pem" "$FOLDER/$role/ca.pem"
    extensions=of_member
    [ "$role" != server ] || extensions=of_server
    certify "/OU=$role/CN=kvstore test $role" "$extensions" "$FOLDER/$role/key.pem" \
        "$FOLDER/$role/cert.pem" -keyfile "$work/key" -cert "$work/ca.pem"
done
