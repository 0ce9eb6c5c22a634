import java.lang.annotation.Annotation;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.Enumeration;
import java.util.TreeMap;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import java.io.File;

/** Prints every command header of RocketMQ's jars: class, request code if it names one, and its fields. */
public class HeaderFields {
    public static void main(String[] args) throws Exception {
        Class<?> base = Class.forName("org.apache.rocketmq.remoting.CommandCustomHeader");
        for (String path : System.getProperty("java.class.path").split(File.pathSeparator)) {
            if (!path.matches(".*rocketmq-(remoting|common)-[0-9.]*jar")) continue;
            try (JarFile jar = new JarFile(path)) {
                for (Enumeration<JarEntry> all = jar.entries(); all.hasMoreElements(); ) {
                    String name = all.nextElement().getName();
                    if (!name.matches("org/apache/rocketmq/(remoting|common)/protocol/header/.*[.]class")) continue;
                    Class<?> type = Class.forName(name.replace('/', '.').replace(".class", ""), false, base.getClassLoader());
                    if (base.isAssignableFrom(type) && !Modifier.isAbstract(type.getModifiers())) print(type);
                }
            }
        }
    }

    static void print(Class<?> type) throws Exception {
        StringBuilder line = new StringBuilder(type.getSimpleName()).append('\t');
        for (Annotation a : type.getAnnotations())
            if (a.annotationType().getSimpleName().equals("RocketMQAction"))
                line.append(a.annotationType().getMethod("value").invoke(a));
        TreeMap<String, String> fields = new TreeMap<>();
        for (Class<?> c = type; c != Object.class; c = c.getSuperclass())
            for (Field f : c.getDeclaredFields())
                if (!Modifier.isStatic(f.getModifiers())) {
                    boolean required = false;
                    for (Annotation a : f.getAnnotations()) required |= a.annotationType().getSimpleName().equals("CFNotNull");
                    fields.put(f.getName(), f.getType().getSimpleName() + (required ? "!" : ""));
                }
        System.out.println(line.append('\t').append(fields));
    }
}
