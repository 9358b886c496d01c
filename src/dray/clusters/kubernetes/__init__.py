"""Ray on Kubernetes, by KubeRay: manifests, the rules they keep, and the API calls that make and end them."""
