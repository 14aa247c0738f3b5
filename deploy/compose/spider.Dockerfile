# MariaDB with the engine Spider, for the front and the shards of shards.yml.
FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends mariadb-server mariadb-plugin-spider \
    && rm -rf /var/lib/apt/lists/* /var/lib/mysql \
    && install -d -o mysql -g mysql /var/lib/mysql
USER mysql
