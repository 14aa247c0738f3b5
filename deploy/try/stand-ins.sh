#!/usr/bin/env bash
# Makes stand-ins for the images of Dockerfile and docker-compose.yml, for an engine that cannot
# pull images. They come from Debian's packages and from this machine's Rust tool chain. They have
# the entrypoints, users and folders of the originals; versions may differ (HAProxy 2.6, Redis 7.0,
# the newest MySQL). Existing images are left as they are.
#
#   deploy/try/stand-ins.sh    as root; needs docker, debootstrap and rustc; 3 minutes, 3 GB
#
# Access to archives and registries is as on this machine: apt's settings and sources, certificates,
# cargo's configuration, and the variables of a proxy.
# Exit codes: 0 all images are there, 2 one could not be made.
set -eu -o pipefail
cd "$(dirname "$0")/../.."

die() {
  echo "stand-ins: $*" >&2
  exit 2
}

for program in docker debootstrap rustc; do
  command -v "$program" >/dev/null || die "$program is missing"
done
sources=(/etc/apt/sources.list /etc/apt/sources.list.d)
mirror=$(grep -rhoE '^[^#]*https?://[^ ]+/debian/?( |$)' "${sources[@]}" 2>/dev/null |
  grep -oE 'https?://[^ ]+' | head -n 1) || true
mirror=${DEBIAN_MIRROR:-${mirror:-http://deb.debian.org/debian}}
proxies=()
for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
  [ -z "${!name-}" ] || proxies+=(--build-arg "$name")
done
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# A minimal Debian of that release, as an image.
import_debian() { # RELEASE IMAGE
  local root=$scratch/$1
  debootstrap --variant=minbase --include=ca-certificates "$1" "$root" "$mirror" >"$scratch/log" ||
    { tail -n 5 "$scratch/log" >&2; die "debootstrap could not make $1 from $mirror"; }
  echo "deb $mirror $1 main" >"$root/etc/apt/sources.list"
  apt-config dump Acquire >"$root/etc/apt/apt.conf.d/90machine"
  cp /usr/local/share/ca-certificates/*.crt "$root/usr/local/share/ca-certificates/" || true
  cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
  # As slim images are: a package that needs its folder for manuals fails in them.
  echo 'path-exclude /usr/share/man/*' >"$root/etc/dpkg/dpkg.cfg.d/slim"
  rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/usr/share/man/*
  tar -C "$root" -c . | docker import --change 'CMD ["bash"]' - "$2" >/dev/null
  rm -rf "$root"
}

# An image from the Dockerfile on stdin and the files of a folder.
build() { # IMAGE [FOLDER]
  docker build -q "${proxies[@]}" -t "$1" -f - "${2:-$scratch}" >/dev/null ||
    die "could not build $1"
}

make_rust() {
  local sysroot home=${CARGO_HOME:-$HOME/.cargo} version=${1#rust:}
  sysroot=$(rustc --print sysroot)
  [[ $(rustc --version) == "rustc ${version%%-*} "* ]] || die "$1 needs that rustc, not another"
  mkdir "$scratch/rust"
  cp -a "$sysroot/bin" "$sysroot/lib" "$scratch/rust/"
  [ ! -f "$home/config.toml" ] || cp "$home/config.toml" "$scratch/rust/"
  build "$1" "$scratch/rust" <<'END'
FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends g++ gcc libc6-dev make
COPY . /usr/local/cargo/
ENV CARGO_HOME=/usr/local/cargo PATH=/usr/local/cargo/bin:/usr/sbin:/usr/bin:/sbin:/bin
END
  rm -rf "$scratch/rust"
}

# Libraries and certificates only, as the original.
make_distroless() {
  build "$1" <<'END'
FROM debian:bookworm-slim AS packages
WORKDIR /packages
RUN apt-get update && apt-get download base-files libc6 libgcc-s1 libgomp1 libssl3 libstdc++6 \
      netbase tzdata \
    && for package in *.deb; do dpkg-deb -x "$package" /root-folder || exit; done \
    && cd /root-folder && mkdir -p etc/ssl/certs nonroot tmp && chmod 1777 tmp \
    && chown 65532:65532 nonroot && cp /etc/ssl/certs/ca-certificates.crt etc/ssl/certs/ \
    && echo 'nonroot:x:65532:65532:nonroot:/nonroot:/sbin/nologin' >etc/passwd \
    && echo 'nonroot:x:65532:' >etc/group
FROM scratch
COPY --from=packages /root-folder /
USER 65532
WORKDIR /nonroot
ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
END
}

# With the part of the original's entrypoint that the compose file relies on.
make_mysql() {
  docker image inspect debian-sid >/dev/null 2>&1 || import_debian sid debian-sid
  cat >"$scratch/entrypoint.sh" <<'END'
#!/bin/sh
set -eu
[ "${1#-}" = "$1" ] || set -- mysqld "$@"
if [ "$1" = mysqld ] && [ ! -d /var/lib/mysql/mysql ]; then
  cat >/tmp/init.sql <<SQL
CREATE USER root@'%' IDENTIFIED BY '${MYSQL_ROOT_PASSWORD:?is not set}';
GRANT ALL ON *.* TO root@'%' WITH GRANT OPTION;
ALTER USER root@localhost IDENTIFIED BY '$MYSQL_ROOT_PASSWORD';
CREATE DATABASE \`$MYSQL_DATABASE\`;
CREATE USER '$MYSQL_USER'@'%' IDENTIFIED BY '${MYSQL_PASSWORD:?is not set}';
GRANT ALL ON \`$MYSQL_DATABASE\`.* TO '$MYSQL_USER'@'%';
SQL
  mysqld --initialize-insecure --init-file=/tmp/init.sql
  rm /tmp/init.sql
fi
exec "$@"
END
  build "$1" <<'END'
FROM debian-sid
RUN groupadd -r -g 999 mysql && useradd -r -u 999 -g 999 -d /var/lib/mysql mysql \
    && apt-get update \
    && apt-get install -y --no-install-recommends mysql-server-core mysql-client-core \
    && rm -rf /var/lib/mysql && install -d -m 1777 -o mysql -g mysql /var/lib/mysql \
       /var/lib/mysql-files /var/run/mysqld
RUN printf '[mysqld]\nuser=mysql\ndatadir=/var/lib/mysql\nsocket=/var/run/mysqld/mysqld.sock\n\
mysqlx_socket=/var/run/mysqld/mysqlx.sock\n[client]\nsocket=/var/run/mysqld/mysqld.sock\n' \
    >/etc/my.cnf && mkdir -p /etc/mysql && cp /etc/my.cnf /etc/mysql/my.cnf
COPY --chmod=755 entrypoint.sh /usr/local/bin/docker-entrypoint.sh
VOLUME /var/lib/mysql
ENTRYPOINT ["docker-entrypoint.sh"]
CMD ["mysqld"]
END
}

make_redis() {
  build "$1" <<'END'
FROM debian:bookworm-slim
RUN groupadd -r -g 999 redis && useradd -r -u 999 -g 999 redis && apt-get update \
    && apt-get install -y --no-install-recommends redis-tools \
    && ln -s redis-check-rdb /usr/bin/redis-server && install -d -o redis -g redis /data
VOLUME /data
WORKDIR /data
CMD ["redis-server"]
END
}

make_haproxy() {
  build "$1" <<'END'
FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends haproxy wget
USER haproxy
STOPSIGNAL SIGUSR1
CMD ["haproxy", "-W", "-db", "-f", "/usr/local/etc/haproxy/haproxy.cfg"]
END
}

# Images that are no stage of the Dockerfile itself. All others are built on Debian's.
images=$({ sed -nE 's/^FROM ([^ ]*[:/][^ ]*).*/\1/p' Dockerfile
  sed -nE 's/^ +image: ([^$]+)$/\1/p' docker-compose.yml; } | sort -u)
for image in debian:bookworm-slim $images; do
  ! docker image inspect "$image" >/dev/null 2>&1 || continue
  echo "Making a stand-in for $image"
  case $image in
    debian:*) import_debian bookworm "$image" ;;
    rust:*) make_rust "$image" ;;
    gcr.io/distroless/cc-debian12:*) make_distroless "$image" ;;
    mysql:*) make_mysql "$image" ;;
    redis:*) make_redis "$image" ;;
    haproxy:*) make_haproxy "$image" ;;
    *) die "no stand-in is known for $image" ;;
  esac
done
