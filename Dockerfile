# CPU:  docker build -t jax-es .
# GPU:  docker build -t jax-es-cuda --build-arg EXTRAS=plot,video,cuda .
FROM python:3.12-slim

# What MuJoCo renders videos with.
RUN apt-get update && apt-get install -y --no-install-recommends libegl1 && rm -rf /var/lib/apt/lists/*
ENV MUJOCO_GL=egl

ARG EXTRAS=plot,video
WORKDIR /jax-es
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY jax_es jax_es
COPY models models
COPY envs envs
RUN python3 -m venv .venv && .venv/bin/pip install -q -c constraints.txt -e ".[$EXTRAS]"
ENV PATH=/jax-es/.venv/bin:$PATH

# Runs are written to /work/runs: mount a folder there.
WORKDIR /work
ENTRYPOINT ["jax-es"]
CMD ["train"]
