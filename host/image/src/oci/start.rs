//! What an image starts, as Docker has it.

use super::OciImage;
use crate::error::Result;
use crate::root::{Command, error};

/// Where commands are looked for if the image does not say.
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

impl OciImage {
    /// What it starts. A `program` takes the place of its `Entrypoint`, and of its `Cmd`, too, as `docker run
    /// --entrypoint` has it; `arguments`, if there are some, that of its `Cmd`. A program without a slash is
    /// looked for in the `PATH` of the image's environment. Directories that the image names are made.
    ///
    /// # Errors
    /// If it says nothing of what to start, or what is not in it, or lacks its interpreter or a library; if
    /// its user is unknown.
    pub fn command(&mut self, program: Option<&str>, arguments: &[String]) -> Result<Command> {
        let own = |words: &Option<Vec<String>>| words.clone().unwrap_or_default();
        let (entrypoint, cmd) = match program {
            Some(program) => (vec![program.to_owned()], Vec::new()),
            None => (own(self.config.entrypoint()), own(self.config.cmd())),
        };
        let rest = if arguments.is_empty() { cmd } else { arguments.to_vec() };
        let mut words = entrypoint.into_iter().chain(rest);
        let Some(first) = words.next().filter(|word| !word.is_empty()) else {
            return Err(error(
                &self.place,
                "nothing to start (Entrypoint, Cmd): name a program of the image",
            ));
        };
        let directory = self.config.working_dir().clone().filter(|directory| !directory.is_empty());
        let directory = directory.unwrap_or_else(|| "/".to_owned());
        if !directory.starts_with('/') {
            return Err(error(&self.place, format!("WorkingDir {directory}: expected an absolute path")));
        }
        let user = self.config.user().clone().filter(|user| !user.is_empty());
        let user = user.unwrap_or_else(|| "0".to_owned());
        let (number, group) = self.root.user(&user)?;
        let mut environment = own(self.config.env());
        let has =
            |environment: &[String], name: &str| environment.iter().any(|entry| entry.starts_with(name));
        if !has(&environment, "PATH=") {
            environment.push(PATH.to_owned());
        }
        if !has(&environment, "HOME=") {
            environment.push(format!("HOME={}", self.root.home(number)));
        }
        let program = self.find(&first, &directory, &environment)?;
        let places = environment.iter().find_map(|entry| entry.strip_prefix("LD_LIBRARY_PATH="));
        let places = places.unwrap_or_default().split(':').filter(|place| place.starts_with('/'));
        self.root.check_program(&program, places.map(str::to_owned).collect())?;
        for made in std::iter::once(&directory).chain(self.config.volumes().iter().flatten()) {
            self.root.make_directory(made);
        }
        Ok(Command { program, arguments: words.collect(), environment, directory, user: (number, group) })
    }

    /// The path of a program of the image.
    fn find(&self, program: &str, directory: &str, environment: &[String]) -> Result<String> {
        let absent =
            |places: &str| error(&self.place, format!("starts {program}, which is not in the image{places}"));
        if program.contains('/') {
            let path = match program.starts_with('/') {
                true => program.to_owned(),
                false => format!("{}/{program}", directory.trim_end_matches('/')),
            };
            return self.root.leads_to_file(&path).then_some(path).ok_or_else(|| absent(""));
        }
        let places = environment.iter().find_map(|entry| entry.strip_prefix("PATH=")).unwrap_or_default();
        let mut paths = places.split(':').map(|place| format!("{}/{program}", place.trim_end_matches('/')));
        let found = paths.find(|path| self.root.leads_to_file(path));
        found.ok_or_else(|| absent(&format!(": looked in {places}")))
    }
}
