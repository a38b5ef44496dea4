//! The frame of every page: templates, style sheet and script, put together into one file.

use std::sync::LazyLock;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, context};
use serde::Serialize;

/// The style sheet that the charts are drawn for: light, dark and print.
const STYLE: &str = concat!(include_str!("../assets/style.css"), include_str!("../assets/chart.css"));
const SCRIPT: &str = include_str!("../assets/script.js");

const TEMPLATES: [(&str, &str); 6] = [
    ("charts.html", include_str!("../assets/charts.html")),
    ("frame.html", include_str!("../assets/frame.html")),
    ("parts.html", include_str!("../assets/parts.html")),
    ("record.html", include_str!("../assets/record.html")),
    ("experiment.html", include_str!("../assets/experiment.html")),
    ("paper.html", include_str!("../assets/paper.html")),
];

/// A page as one self-contained HTML file. The template names only fields of the page.
pub fn render(template: &str, page: &impl Serialize) -> String {
    static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
        let mut environment = Environment::new();
        environment.set_auto_escape_callback(|_| AutoEscape::Html);
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.expect("only whitespace is set"));
        for (name, text) in TEMPLATES {
            environment.add_template(name, text).expect("the templates are well formed");
        }
        environment
    });
    let frame = context! { page => Serde(page), style => STYLE, script => SCRIPT };
    let template = ENVIRONMENT.get_template(template).expect("the template is one of ours");
    template.render(frame).expect("the template names only what it is given")
}
