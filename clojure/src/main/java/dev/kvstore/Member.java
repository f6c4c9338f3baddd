package dev.kvstore;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/**
 * A live member of the group that shares a store on servers, see {@link KVStore#members}.
 *
 * @param name the name, which is unique among the live members
 * @param rank the rank among the members of the same role, from 0
 * @param isReader whether the member never pushes
 */
public record Member(String name, long rank, boolean isReader) {
    /** Decodes the members of the native library, see {@link NativeGroup#members}. */
    static List<Member> of(Object[] found) {
        String[] names = (String[]) found[0];
        long[] numbers = (long[]) found[1];
        List<Member> members = new ArrayList<>(names.length);
        for (int i = 0; i < names.length; i++) {
            members.add(new Member(names[i], numbers[2 * i], numbers[2 * i + 1] != 0));
        }
        return Collections.unmodifiableList(members);
    }
}
