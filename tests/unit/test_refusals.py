"""What a user reads when Redis refuses a command, or its TLS a connection: what is missing, and what to write."""

import pytest
from redis.exceptions import NoPermissionError, ResponseError

from reliq.errors import RedisUnsuitable
from reliq.transport.errors import tls_hint, translated


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("this user has no permissions to run the 'config|get' command", "run CONFIG GET: give it the permission +con"),
        ("User api has no permissions to run the 'sort' command", "run SORT: give it the permission +sort"),
        ("this user has no permissions to run the 'client' command or its subcommand", "+client"),
        ("No permissions to access a key", "~reliq:*"),
        ("this user has no permissions to access one of the keys used as arguments", "~reliq:*"),
    ],
)
def test_a_missing_permission_is_named(text, says):
    found = translated(NoPermissionError(text))
    assert isinstance(found, RedisUnsuitable)
    assert says in str(found)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ACL failure in script: User api has no permissions to run the 'hset' command", "+hset"),
        ("ACL failure in script: User api has no permissions to access the 'x' key", "~reliq:*"),
        ("The user executing the script can't run this command or subcommand", "ACL LOG says which one"),
    ],
)
def test_one_that_a_script_lacks_is_named_though_its_error_has_no_code(text, says):
    found = translated(ResponseError(f"{text} script: a7f77a452d97cbd771ed, on @user_script:1."))
    assert isinstance(found, RedisUnsuitable)
    assert says in str(found)


@pytest.mark.parametrize(
    ("url", "cause", "says"),
    [
        ("rediss://h", "TLS: [SSL] tlsv13 alert certificate required", "ssl_certfile="),
        ("rediss://h", "TLS: [SSL: TLSV1_ALERT_UNKNOWN_CA] tlsv1 alert unknown ca", "ssl_certfile="),
        ("rediss+cluster://h", "no such file or directory", "ssl_ca_certs"),
        ("redis://h", "no such file or directory", ""),
        ("rediss://h", "TLS: EOF occurred in violation of protocol", "it may want a certificate"),
        ("rediss://h", "connection reset by peer", "it may want a certificate"),
        ("rediss://h", "TLS: [SSL: SSLV3_ALERT_CERTIFICATE_EXPIRED] sslv3 alert certificate expired", "ssl_certfile"),
        ("rediss://h", "TLS: certificate verify failed: certificate has expired", "renew the server's certificate"),
        ("rediss://h", "TLS: certificate verify failed: certificate is not yet valid", "the clock of this machine"),
        ("rediss://h", "TLS: [SSL] PEM lib", "ssl_password"),
        ("rediss://h", "TLS: [X509: KEY_VALUES_MISMATCH] key values mismatch", "is not that of the certificate"),
        ("rediss://h", "TLS: [X509: NO_CERTIFICATE_OR_CRL_FOUND] no certificate or crl found", "has no certificate"),
        ("rediss://h", "is a directory", "names a folder"),
        ("rediss://h", "permission denied", "may not read a file"),
        ("rediss+cluster://h", "timed out", "must begin with redis+cluster://"),
        ("rediss+sentinel://h", "no sentinel answers: timed out", ""),
        ("redis+cluster://h", "the server closed the connection", "must begin with rediss+cluster://"),
        ("unix:///s", "the server closed the connection", ""),
    ],
)
def test_what_tls_lacks_is_named(url, cause, says):
    hint = tls_hint(url, cause)
    assert says in hint
    assert bool(hint) is bool(says)
