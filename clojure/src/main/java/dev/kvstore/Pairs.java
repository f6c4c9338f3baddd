package dev.kvstore;

import static java.util.Objects.requireNonNull;

import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.IntFunction;

/** Converts keys and values to the arrays that native calls take. */
final class Pairs {
    private Pairs() {}

    static String[] one(String key) {
        return new String[] {requireNonNull(key, "key")};
    }

    static Value[] one(Value value) {
        return new Value[] {requireNonNull(value, "value")};
    }

    static NDArray[] one(NDArray array, String parameter) {
        return new NDArray[] {requireNonNull(array, parameter)};
    }

    static String[] repeat(String key, int count) {
        String[] keys = new String[count];
        Arrays.fill(keys, requireNonNull(key, "key"));
        return keys;
    }

    static String[] strings(List<String> keys) {
        return requireNonNull(keys, "keys").toArray(String[]::new);
    }

    static Value[] values(List<? extends Value> values) {
        return requireNonNull(values, "values").toArray(Value[]::new);
    }

    static NDArray[] arrays(List<NDArray> arrays, String parameter) {
        return requireNonNull(arrays, parameter).toArray(NDArray[]::new);
    }

    /** Copies a map, so that no other thread changes it between reading its keys and its values. */
    static <V> Map<String, V> fixed(Map<String, ? extends V> map, String parameter) {
        return new LinkedHashMap<>(requireNonNull(map, parameter));
    }

    static String[] keysOf(Map<String, ?> map) {
        return map.keySet().toArray(String[]::new);
    }

    static <V> V[] valuesOf(Map<String, V> map, IntFunction<V[]> newArray) {
        return map.values().toArray(newArray);
    }

    static void check(Object[] elements, String parameter) {
        check(elements, parameter, new String[0]);
    }

    /** Throws if an element is null. The message names the element and its key, if there is one. */
    static void check(Object[] elements, String parameter, String[] keys) {
        requireNonNull(elements, parameter);
        for (int i = 0; i < elements.length; i++) {
            if (elements[i] == null) {
                String key = i < keys.length ? " for key `" + keys[i] + "`" : "";
                throw new NullPointerException(parameter + "[" + i + "]" + key);
            }
        }
    }
}
