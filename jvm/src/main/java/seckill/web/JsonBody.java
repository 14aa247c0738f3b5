package seckill.web;

import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/** A parameter that is the request's body: a JSON object, read by {@link JsonBodyResolver}. */
@Target(ElementType.PARAMETER)
@Retention(RetentionPolicy.RUNTIME)
@interface JsonBody {
    /** Whether there may be no body; the parameter is then null. */
    boolean optional() default false;
}
