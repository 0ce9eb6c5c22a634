import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;

/** Says of each expression of a file what it is of each of the file's properties: one line each.
 * T, F, N (unknown) or E (it can't be evaluated); or that the expression is wrong, and where. */
public class SqlFilters {
    public static void main(String[] args) throws Exception {
        JSONObject file = JSON.parseObject(new String(Files.readAllBytes(Paths.get(args[0])), "UTF-8"));
        for (Object each : file.getJSONArray("cases")) {
            String text = ((JSONObject) each).getString("expression");
            System.out.println(answer(text, file.getJSONArray("properties")));
        }
    }

    static String answer(String text, JSONArray properties) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get("SQL92").compile(text);
        } catch (Throwable error) {
            // Where words were no longer understood; characters that begin no word have no place.
            String place = error.getMessage().replaceAll("(?s).*Encountered.* (at line \\d+, column \\d+).*", "$1");
            return place.startsWith("at line") ? "wrong " + place : "wrong";
        }
        StringBuilder answers = new StringBuilder();
        for (Object each : properties) {
            Map<String, String> map = new HashMap<>();
            ((JSONObject) each).forEach((name, value) -> map.put(name, (String) value));
            try {
                Object value = expression.evaluate(new MessageEvaluationContext(map));
                answers.append(value == null ? 'N' : value == Boolean.TRUE ? 'T' : value == Boolean.FALSE ? 'F' : '?');
            } catch (Throwable error) {
                answers.append('E');
            }
        }
        return answers.toString();
    }
}
