# strata with CUDA 13. In the root of the repository:
#   docker build -f containers/cuda.Dockerfile -t strata:cuda .
#   docker run --rm --gpus all --ulimit memlock=-1 --user "$(id -u):$(id -g)" -v "$PWD:/work" strata:cuda train run.toml memory.backend=cuda
# ARCH: compute capabilities as in CMAKE_CUDA_ARCHITECTURES; 90a (H100, H200) alone takes a fraction of the time.
ARG CUDA_IMAGE=nvidia/cuda:13.0.2-cudnn-devel-ubuntu24.04
FROM ${CUDA_IMAGE} AS toolkit

# Debian 12 has the libraries that strata is written for; of NVIDIA's image only the toolkit is used.
FROM debian:12-slim AS build
ARG ARCH=80-real;90a-real;100-real;80-virtual
COPY --from=toolkit /usr/local/cuda/ /usr/local/cuda/
ENV PATH=/usr/local/cuda/bin:$PATH
WORKDIR /src
COPY scripts/setup.sh scripts/
RUN scripts/setup.sh
COPY . .
RUN cmake --preset cuda -DCMAKE_INSTALL_PREFIX=/opt/strata "-DCMAKE_CUDA_ARCHITECTURES=${ARCH}" \
      -DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=8 \
      -DSTRATA_BUILD_TESTS=OFF -DSTRATA_BUILD_BENCH=OFF -DSTRATA_BUILD_EXAMPLES=OFF \
 && cmake --build --preset cuda \
 && cmake --install build/cuda --strip \
 && containers/collect_runtime.sh /opt/strata /runtime

FROM debian:12-slim
COPY --from=build /runtime/packages /opt/strata/packages
RUN apt-get update \
 && xargs -a /opt/strata/packages apt-get install -y --no-install-recommends \
 && rm -rf /var/lib/apt/lists/*
# What is loaded when it is used: GEMMs, and the exchange among several GPUs. The driver is the host's.
COPY --from=toolkit /usr/local/cuda/lib64/libcublasLt.so.13 /usr/lib/x86_64-linux-gnu/libnccl.so.2 /opt/strata/cuda/
COPY --from=build /runtime/strata /opt/strata
RUN echo /opt/strata/cuda > /etc/ld.so.conf.d/strata.conf && ldconfig
ENV PATH=/opt/strata/bin:$PATH XDG_CACHE_HOME=/tmp/cache \
    NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
# Files that a container writes into a mounted folder belong to this user, or to that of --user.
RUN useradd --uid 1000 --create-home strata && install -d -o strata -g strata /work
USER strata
RUN strata --version
WORKDIR /work
ENTRYPOINT ["strata"]
CMD ["--help"]
