# Two stages: the first builds the binary (its image has the C compiler that this needs), the second holds it and
# nothing that it was built with.
#
#     docker build -t ciphergram .
#     docker run --rm ciphergram demo
#     docker run --rm --user "$(id -u)" -v "$PWD:/work" ciphergram keygen --clients 8 --out keys
#
# docs/install.md runs an aggregator in it.

FROM rust:1.95-slim-bookworm AS build
WORKDIR /ciphergram
COPY . .
ENV CARGO_PROFILE_RELEASE_STRIP=symbols CARGO_PROFILE_RELEASE_DEBUG=false
RUN cargo build --release --locked --package ciphergram \
    && install -D target/release/ciphergram /out/usr/local/bin/ciphergram \
    && install -D -m 644 -t /out/usr/local/share/doc/ciphergram \
        LICENSE-APACHE LICENSE-MIT README.md SECURITY.md

FROM debian:bookworm-slim
COPY --from=build /out /
RUN useradd --uid 10001 --home-dir /work --create-home ciphergram
USER ciphergram
WORKDIR /work
EXPOSE 7700/udp 7700/tcp
ENTRYPOINT ["ciphergram"]
CMD ["--help"]
