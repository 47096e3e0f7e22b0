# A worker's image with a package of your own functions in it (deploy/transforms.md): a layer over an image that is there.
# The context is the folder that `pip install --no-deps --target transforms ./newsroom-transforms` made:
#   docker build -f deploy/docker/transforms.Dockerfile --build-arg IMAGE=enricher:0.1.0-cpu -t enricher:mine transforms
ARG IMAGE=enricher:0.1.0-cpu
FROM ${IMAGE}
COPY . /opt/enricher/lib/python3.11/site-packages/
