package dev.kvstore;

import static java.util.Objects.requireNonNull;

import java.math.BigDecimal;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Names with their values, as the native library takes options and environment variables. It checks
 * the names and values.
 */
final class OptionMap {
    /** No options. */
    static final OptionMap EMPTY = new OptionMap(Map.of());

    private final Map<String, String> values;

    OptionMap(Map<String, String> values) {
        this.values = values;
    }

    /** Returns these options with another value of one. */
    OptionMap with(String name, String value) {
        requireNonNull(value, name);
        Map<String, String> changed = new LinkedHashMap<>(values);
        changed.put(name, value);
        return new OptionMap(changed);
    }

    /** Returns these options with another value of one, in seconds. */
    OptionMap with(String name, Duration value) {
        requireNonNull(value, name);
        BigDecimal fraction = BigDecimal.valueOf(value.getNano(), 9);
        return with(name, fraction.add(BigDecimal.valueOf(value.getSeconds())).toPlainString());
    }

    String[] names() {
        return values.keySet().toArray(String[]::new);
    }

    String[] values() {
        return values.values().toArray(String[]::new);
    }

    @Override
    public String toString() {
        return values.toString();
    }
}
