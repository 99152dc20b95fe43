# The lessons and the levels in a container, for Linux, Windows and macOS. Docker and Podman take
# the same commands:
#
#   docker build --tag sgemm_kernels .
#   docker run --rm --publish 8888:8888 sgemm_kernels    # the lessons: open the address it prints
#   docker run --rm --interactive --tty --volume "$PWD:/home/learner/mine" \
#       --workdir /home/learner/mine sgemm_kernels bash    # a shell, for `sgemm-kernels learn`
#
# The image computes on the CPU. For an NVIDIA GPU, build it with
# `--build-arg SGEMM_KERNELS_CUDA=index`, which downloads nvcc, and run it with `--gpus all`.
FROM python:3.12-slim-bookworm

# g++ compiles the package, and later the learner's kernels.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*

ARG SGEMM_KERNELS_CUDA=0
COPY . /source
RUN pip install --no-cache-dir '/source[notebooks]' \
    && useradd --create-home learner \
    && cp -r /source/notebooks /home/learner/notebooks \
    && chown -R learner /home/learner \
    && rm -r /source

USER learner
WORKDIR /home/learner
EXPOSE 8888
CMD ["jupyter", "lab", "--ip=0.0.0.0", "--no-browser", "notebooks"]
