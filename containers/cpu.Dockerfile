# strata without CUDA, as a small image. In the root of the repository:
#   docker build -f containers/cpu.Dockerfile -t strata:cpu .
#   docker run --rm -v "$PWD:/work" --user "$(id -u):$(id -g)" strata:cpu train --preset austen-5m --out runs/first
FROM debian:12-slim AS build
WORKDIR /src
# First the packages alone, so that a change of a source does not install them again.
COPY scripts/setup.sh scripts/
RUN scripts/setup.sh
COPY . .
# A unity build parses the headers once for eight sources.
RUN cmake --preset host -DCMAKE_INSTALL_PREFIX=/opt/strata -DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=8 \
      -DSTRATA_BUILD_TESTS=OFF -DSTRATA_BUILD_BENCH=OFF -DSTRATA_BUILD_EXAMPLES=OFF \
 && cmake --build --preset host \
 && cmake --install build/host --strip \
 && containers/collect_runtime.sh /opt/strata /runtime

FROM debian:12-slim
COPY --from=build /runtime/packages /opt/strata/packages
RUN apt-get update \
 && xargs -a /opt/strata/packages apt-get install -y --no-install-recommends \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /runtime/strata /opt/strata
ENV PATH=/opt/strata/bin:$PATH XDG_CACHE_HOME=/tmp/cache
# Files that a container writes into a mounted folder belong to this user, or to that of --user.
RUN useradd --uid 1000 --create-home strata && install -d -o strata -g strata /work
USER strata
RUN strata --version
WORKDIR /work
ENTRYPOINT ["strata"]
CMD ["--help"]
