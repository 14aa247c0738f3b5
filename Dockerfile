# The image of the service (the last stage, and so the default), and that of the laboratory
# (--target lab). docs/compose.md says how long they build; `make check-image` runs the build
# stages' commands without an engine.

FROM rust:1.95.0-bookworm AS source
WORKDIR /build
# What .dockerignore lets through. Not rust-toolchain.toml: it asks for rustfmt and clippy, and
# these images have no use for them.
COPY . .

# The caches outlive a build but are no part of the image: the program is copied out of them. Both
# packages are named, here too, so that libraries have the features that they have in `make bench`.
FROM source AS build
ARG PROFILE=release
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/build/target,sharing=locked \
    cargo build --profile $PROFILE --locked --package seckill --package loadtest --bin seckill \
    && mkdir out \
    && cp target/$PROFILE/seckill out/ \
    && strip out/seckill

FROM source AS build-lab
ARG PROFILE=release
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/build/target,sharing=locked \
    cargo build --profile $PROFILE --locked --package seckill --package loadtest --bins \
    && mkdir out-lab \
    && cp target/$PROFILE/seckill target/$PROFILE/loadtest out-lab/ \
    && strip out-lab/*

# The servers that the laboratory starts for itself, and the C compiler for its clock that is wrong.
# (Java's package fails where the folder for manuals is missing, as it may be in slim images.)
FROM debian:bookworm-slim AS lab
COPY deploy/install-servers.sh deploy/lab.sh /usr/local/bin/
RUN mkdir -p /usr/share/man/man1 \
    && apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates gcc libc6-dev \
    && install-servers.sh \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build-lab /build/out-lab/ /usr/local/bin/
WORKDIR /report
ENTRYPOINT ["lab.sh"]
CMD ["demo"]

# The C library and certificates, and nothing else: no shell, no package manager. Runs as 65532.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /build/out/seckill /usr/local/bin/seckill
ENV BIND=0.0.0.0:8080
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=10s --retries=3 \
    CMD ["/usr/local/bin/seckill", "probe"]
ENTRYPOINT ["/usr/local/bin/seckill"]
CMD ["serve"]
