package seckill.web;

import java.util.Map;

import jakarta.servlet.http.HttpServletRequest;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.springframework.http.ResponseEntity;
import org.springframework.web.ErrorResponse;
import org.springframework.web.HttpRequestMethodNotSupportedException;
import org.springframework.web.bind.annotation.ExceptionHandler;
import org.springframework.web.bind.annotation.RestControllerAdvice;
import org.springframework.web.method.annotation.MethodArgumentTypeMismatchException;

/** Answers every exception with a problem; what went wrong inside is in the log only. */
@RestControllerAdvice
class ProblemAdvice {
    private static final Logger LOG = LoggerFactory.getLogger(ProblemAdvice.class);

    @ExceptionHandler
    ResponseEntity<Map<String, Object>> answer(Exception error, HttpServletRequest request) {
        return problem(error).answer(ReplicaFilter.requestId(request));
    }

    static Problem problem(Exception error) {
        if (error instanceof MethodArgumentTypeMismatchException wrong) {
            return Problem.invalid("invalid_id", wrong.getName(),
                    "must be a whole number from 1 to " + Long.MAX_VALUE);
        }
        if (error instanceof HttpRequestMethodNotSupportedException) {
            return Problem.methodNotAllowed();
        }
        if (error instanceof ErrorResponse) {
            return Problem.notFound();
        }
        Problem problem = Problem.of(error);
        if (problem.isInternal()) {
            LOG.error("request failed; answered 500", error);
        }
        return problem;
    }
}
