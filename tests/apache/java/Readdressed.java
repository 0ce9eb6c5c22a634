import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * Runs a program of Apache's that has the address of its NameServer written in it, with the address that the property
 * rocketmq.namesrv.addr gives in its place: the name of its class, and its own arguments.
 */
public class Readdressed {
    private static final String[] WRITTEN = {
        "127.0.0.1:9876", "localhost:9876", "oms:rocketmq://localhost:9876/default:default"};

    public static void main(String[] args) throws Exception {
        String program = args[0];
        String address = System.getProperty("rocketmq.namesrv.addr");
        ClassLoader loader = new ClassLoader() {
            @Override
            protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
                boolean isPartOfIt = name.equals(program) || name.startsWith(program + "$");
                if (!isPartOfIt) {
                    return super.loadClass(name, resolve);
                }
                Class<?> loaded = findLoadedClass(name);
                if (loaded != null) {
                    return loaded;
                }
                byte[] code = withAddress(read(name), address);
                return defineClass(name, code, 0, code.length);
            }
        };
        Thread.currentThread().setContextClassLoader(loader);
        loader.loadClass(program).getMethod("main", String[].class)
            .invoke(null, (Object) Arrays.copyOfRange(args, 1, args.length));
    }

    private static byte[] read(String name) throws ClassNotFoundException {
        try (InputStream file = ClassLoader.getSystemResourceAsStream(name.replace('.', '/') + ".class")) {
            if (file == null) {
                throw new ClassNotFoundException(name);
            }
            return file.readAllBytes();
        } catch (IOException e) {
            throw new ClassNotFoundException(name, e);
        }
    }

    /** A text in a class file stands behind its length, and nothing points past it: it may become longer. */
    private static byte[] withAddress(byte[] code, String address) {
        String text = new String(code, StandardCharsets.ISO_8859_1);
        for (String written : WRITTEN) {
            text = text.replace(constant(written), constant(written.replaceFirst("[\\w.]+:9876", address)));
        }
        return text.getBytes(StandardCharsets.ISO_8859_1);
    }

    private static String constant(String text) {
        return "\1\0" + (char) text.length() + text;
    }
}
