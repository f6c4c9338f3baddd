package dev.kvstore;

/** A matrix and, for each of its rows, a column. */
final class Rows {
    private final NDArray matrix;
    private final long[] columns;
    private final int width;

    /** Checks that {@code columns} names a column of {@code matrix} for each row. */
    Rows(NDArray matrix, NDArray columns) {
        Shape shape = matrix.shape();
        if (shape.length() != 2) {
            throw KVStoreException.invalidArgument(matrix + " is no matrix");
        }
        if (columns.size() != shape.get(0)) {
            throw KVStoreException.lengthMismatch(
                    "columns for the rows of " + matrix, shape.get(0), columns.size());
        }
        this.matrix = matrix;
        this.columns = columns.toLongs();
        this.width = (int) Math.min(shape.get(1), Integer.MAX_VALUE);
        for (long column : this.columns) {
            if (column < 0 || column >= width) {
                throw KVStoreException.invalidArgument(
                        "column " + column + " of " + matrix + ", expected 0 to " + (width - 1));
            }
        }
    }

    /** The chosen elements as a new vector. */
    NDArray chosen() {
        int size = matrix.dtype().numBytes();
        byte[] all = matrix.toBytes();
        byte[] bytes = new byte[columns.length * size];
        for (int row = 0; row < columns.length; row++) {
            System.arraycopy(all, size * place(row), bytes, size * row, size);
        }
        return NDArray.fromBytes(
                bytes, Shape.of(columns.length), matrix.dtype(), matrix.context());
    }

    /** Ones in the chosen places and zeros everywhere else. */
    byte[] marks() {
        byte[] marks = new byte[Math.multiplyExact(columns.length, width)];
        for (int row = 0; row < columns.length; row++) {
            marks[place(row)] = 1;
        }
        return marks;
    }

    private int place(int row) {
        return Math.toIntExact((long) row * width + columns[row]);
    }
}
