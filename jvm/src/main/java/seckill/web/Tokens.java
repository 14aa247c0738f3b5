package seckill.web;

import java.util.List;

import com.auth0.jwt.JWT;
import com.auth0.jwt.JWTVerifier;
import com.auth0.jwt.algorithms.Algorithm;
import com.auth0.jwt.exceptions.JWTVerificationException;
import com.auth0.jwt.exceptions.TokenExpiredException;
import com.auth0.jwt.interfaces.DecodedJWT;

import org.springframework.stereotype.Component;

import seckill.Options;

/** Access tokens: JWT with HS256, issuer, audience and expiry, signed by the Rust program. */
@Component
class Tokens {
    private final JWTVerifier verifier;

    /** The user whom a token names. */
    record Identity(long user, boolean admin) {}

    Tokens(Options options) {
        verifier = JWT.require(Algorithm.HMAC256(options.jwtSecret()))
                .withIssuer("seckill")
                .withAudience("seckill-api")
                .withClaimPresence("exp")
                .build();
    }

    /** The identity in the one {@code Authorization} header, or a refusal. */
    Identity identity(List<String> headers) {
        if (headers.size() > 1) {
            throw Problem.badToken("The token is not valid; log in again.");
        }
        String authorization = headers.isEmpty() ? "" : headers.get(0);
        if (!authorization.regionMatches(true, 0, "Bearer ", 0, 7)) {
            throw Problem.noToken();
        }
        try {
            DecodedJWT token = verifier.verify(authorization.substring(7).trim());
            boolean admin = "admin".equals(token.getClaim("role").asString());
            return new Identity(Long.parseLong(token.getSubject()), admin);
        } catch (TokenExpiredException error) {
            throw Problem.badToken("The token has expired; log in again.");
        } catch (JWTVerificationException | NumberFormatException error) {
            throw Problem.badToken("The token is not valid; log in again.");
        }
    }
}
