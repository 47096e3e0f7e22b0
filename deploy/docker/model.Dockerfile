# A worker's image with a model of your own in it: a layer over an image that is there, which other models share.
# `scripts/image cpu --model FOLDER`, or with the folder that `enricher model prepare` wrote as the context:
#   docker build -f deploy/docker/model.Dockerfile --build-arg IMAGE=enricher:0.1.0-cpu --build-arg MODEL=my-model my-model
ARG IMAGE=enricher:0.1.0-cpu

FROM ${IMAGE} AS readable
ARG MODEL
USER 0:0
COPY . /models/${MODEL}
# Graphs are written for their owner alone, and the worker is somebody else.
RUN chmod -R a+rX /models
USER 65532:65532
# What was prepared must have arrived whole: it compares the digests.
RUN enricher model inspect "/models/${MODEL}"

FROM ${IMAGE}
ARG MODEL
COPY --from=readable /models /models
ENV ENRICHER_MODEL__SOURCE=/models/${MODEL}
