# syntax=docker/dockerfile:1
# One image with all programs: the operator, masters and agents start their own from it.
#
#   docker build --tag localhost/larder:0.1.0 .

FROM rust:1.95-bookworm AS build
WORKDIR /source
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/source/target \
    cargo build --release --locked \
        --package larder-cli --package larder-master --package larder-node-agent \
        --package larder-operator --bins \
 && mkdir /programs \
 && for program in larder larder-master larder-agent larder-operator; do \
        install --mode=0755 --strip "target/release/$program" "/programs/$program"; \
    done

# The C library and the usual certification authorities are all that the programs need. Masters ask
# for those before they use an object store, an http:// one too; the API server's come with the
# ServiceAccount.
FROM debian:bookworm-slim
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /programs/ /usr/bin/
# Agents set their own user: they write to folders of their node that belong to root.
USER 65532:65532
# No shell is needed, and no file is written: every pod has a read-only root.
ENTRYPOINT ["/usr/bin/larder"]
