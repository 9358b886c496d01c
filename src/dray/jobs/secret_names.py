"""Names of files that hold secrets: what is packed with a job can be read by all users of the cluster. Pure."""

from __future__ import annotations

from dray.jobs.ignoring import Ignore

_NAMES = Ignore(
    (
        # Of programs, by service.
        *(".env", ".env.*", ".env-*", ".env_*", ".envrc", "*.env", ".netrc", "_netrc", ".pgpass", "pgpass.conf"),
        *(".pg_service.conf", ".my.cnf", ".mylogin.cnf", ".terraformrc", ".vault-token", ".modal.toml", "kaggle.json"),
        *(".git-credentials", ".databrickscfg", ".npmrc", ".pypirc", ".boto", ".s3cfg", ".htpasswd", ".dockercfg"),
        *(".kubeconfig", "kubeconfig", "kubeconfig.y*ml", "*.kubeconfig", "*.tfstate", "*.tfstate.*"),
        *(".aws/", ".ssh/", ".kube/", ".gnupg/", ".azure/", ".gcloud/", "**/.config/gcloud/", ".docker/"),
        *(".databricks/", ".snowsql/", ".password-store/", ".huggingface/", ".snowflake/", ".terraform.d/"),
        # Keys.
        *("*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.jceks", "*.keystore", "*.keytab", "*.kdbx", "*.ppk"),
        *("*.ovpn", "id_*", ".id_*", "*_rsa", "*_dsa", "*_ecdsa", "*_ed25519", "ssh_host_*_key"),
        # By what they say.
        *("credentials", ".credentials", "*credentials.json", "credentials.db", "credentials.ini", "credentials.toml"),
        *("credentials.yaml", "credentials.yml", "client_secret*.json", "service_account*.json"),
        *("service-account*.json", "credentials.csv", "*accesskeys.csv", "rootkey.csv", "secret.json", "secret.toml"),
        *("secret.yaml", "secret.yml", "secrets.json", "secrets.toml", "secrets.yaml", "secrets.yml", ".secrets"),
        *("token.json", "auth_token", ".token", ".tokens"),
        # No key, but the ids of something.
        *(f"!id_*.{kind}" for kind in ("py", "pyi", "ipynb", "sql", "r", "csv", "tsv", "parquet", "arrow", "npy")),
        *("!id_*/", "!*_rsa/", "!*_dsa/"),
    )
)


def is_secret(name: str, directory: bool) -> bool:
    """Whether a file of that path is taken for a secret, by its name alone."""
    return bool(_NAMES.verdict(name.lower(), directory))
