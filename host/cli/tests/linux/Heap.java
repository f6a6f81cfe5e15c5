// Fills its heap, needs nothing of it any more, says so, and waits for a file.
import java.nio.file.Files;
import java.nio.file.Path;

public class Heap {
    static byte[][] pieces = new byte[100][];

    public static void main(String[] arguments) throws Exception {
        for (int index = 0; index < pieces.length; index++) {
            pieces[index] = new byte[1 << 20];
            pieces[index][7] = 1;
        }
        pieces = null;
        Files.createFile(Path.of("/tmp/full"));
        while (!Files.exists(Path.of("/tmp/taken"))) {
            Thread.sleep(50);
        }
        System.out.println("java goes on");
    }
}
