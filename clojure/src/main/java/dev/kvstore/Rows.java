package dev.kvstore;

/** A matrix and, for each of its rows, a column. */
final class Rows {
    /** As many elements are in Java's memory at a time. */
    private static final int PIECE = 1 << 24;

    private final NDArray matrix;
    private final long[] columns;
    private final long width;

    /** Checks that {@code columns} names a column of {@code matrix} for each row. */
    Rows(NDArray matrix, NDArray columns) {
        matrix.handle();
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
        this.width = shape.get(1);
        double[] numbers = columns.toDoubles();
        for (int row = 0; row < numbers.length; row++) {
            double column = numbers[row];
            if (column != this.columns[row] || column < 0 || column >= width) {
                throw KVStoreException.invalidArgument(
                        "column " + column + " of " + matrix + ", expected 0 to " + (width - 1));
            }
        }
    }

    /** The chosen elements as a new vector. */
    NDArray chosen() {
        int size = matrix.dtype().numBytes();
        byte[] chosen = new byte[Math.multiplyExact(columns.length, size)];
        try (NDArray all = flat()) {
            inPieces((start, stop, from, to) -> {
                try (NDArray piece = all.slice(start, stop)) {
                    byte[] bytes = piece.toBytes();
                    for (int row = from; row < to; row++) {
                        int place = (int) (place(row) - start);
                        System.arraycopy(bytes, size * place, chosen, size * row, size);
                    }
                }
            });
        }
        return NDArray.fromBytes(
                chosen, Shape.of(columns.length), matrix.dtype(), matrix.context());
    }

    /** Sets the chosen elements to one and all others to zero. */
    void mark() {
        try (NDArray all = flat()) {
            inPieces((start, stop, from, to) -> {
                byte[] marks = new byte[(int) (stop - start)];
                for (int row = from; row < to; row++) {
                    marks[(int) (place(row) - start)] = 1;
                }
                try (NDArray piece = all.slice(start, stop)) {
                    piece.set(marks);
                }
            });
        }
    }

    /** Some elements of the matrix from {@code start} on; those of rows from {@code from} on are chosen. */
    @FunctionalInterface
    private interface Piece {
        void run(long start, long stop, int from, int to);
    }

    private void inPieces(Piece piece) {
        int row = 0;
        for (long start = 0; start < matrix.size(); start += PIECE) {
            long stop = Math.min(start + PIECE, matrix.size());
            int from = row;
            while (row < columns.length && place(row) < stop) {
                row++;
            }
            piece.run(start, stop, from, row);
        }
    }

    private NDArray flat() {
        return matrix.reshape(matrix.size());
    }

    private long place(int row) {
        return row * width + columns[row];
    }
}
