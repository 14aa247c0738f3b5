# syntax=docker/dockerfile:1

FROM rust:1.95.0-bookworm AS build
WORKDIR /build
# Not rust-toolchain.toml: it asks for rustfmt and clippy, and this image has no use for them.
COPY Cargo.toml Cargo.lock ./
COPY conformance conformance
COPY distlock distlock
COPY loadtest loadtest
COPY testbed testbed
COPY deploy deploy
COPY lua lua
COPY migrations migrations
COPY static static
COPY src src
# The caches outlive a build but are no part of the image: the program is copied out of them.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/build/target,sharing=locked \
    cargo build --release --locked --package seckill --bin seckill \
    && cp target/release/seckill /seckill \
    && strip /seckill

# The C library and certificates, and nothing else: no shell, no package manager. Runs as 65532.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /seckill /usr/local/bin/seckill
ENV BIND=0.0.0.0:8080
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=10s --start-interval=1s --retries=3 \
    CMD ["/usr/local/bin/seckill", "probe"]
ENTRYPOINT ["/usr/local/bin/seckill"]
CMD ["serve"]
